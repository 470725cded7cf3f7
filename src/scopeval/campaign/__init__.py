"""Campaigns: evaluations that last for days, on several plants, through restarts."""
