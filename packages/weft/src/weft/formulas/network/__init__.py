"""Jobs that send over the same network links, and when: what truth and policies both compute."""
