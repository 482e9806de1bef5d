"""Gavel: objectives as linear programs, and rounds that follow their solution."""
