"""Lazy catch-up: only the drafter that drafts next is brought up to date."""
