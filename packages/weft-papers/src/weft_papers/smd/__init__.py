"""SMD by its parts: what jobs offer, and the policy that admits and places them."""
