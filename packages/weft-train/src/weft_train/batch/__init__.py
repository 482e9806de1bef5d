"""The batch size, the learning rate that goes with it, and what they are chosen by."""
