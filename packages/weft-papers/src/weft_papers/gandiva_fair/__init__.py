"""Gandiva_fair (EuroSys 2020): users share GPU time by stride, and trade between generations."""
