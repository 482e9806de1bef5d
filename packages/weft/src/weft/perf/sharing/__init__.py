"""Jobs on the same devices and hosts: what each does to the others."""
