"""State changes of jobs, sent to webhooks, chats and mailboxes."""
