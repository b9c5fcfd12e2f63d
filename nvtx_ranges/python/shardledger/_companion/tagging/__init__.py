"""Tags: which tensor an allocation holds."""
