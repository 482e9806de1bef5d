"""The state folder of a service: who may read it, whether it is whole, copies of it."""
