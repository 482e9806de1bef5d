"""The composition root: a description in, a wired run out. Only here do the parts meet."""
