"""Random scenarios played through whole schedulers, and the models they are held against."""
