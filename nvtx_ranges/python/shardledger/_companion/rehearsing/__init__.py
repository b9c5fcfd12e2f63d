"""Rehearsals: one process stands for a rank of many."""
