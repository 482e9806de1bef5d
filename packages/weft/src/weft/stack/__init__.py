"""The layers that every scheduler puts around its policy, whatever policy that is."""
