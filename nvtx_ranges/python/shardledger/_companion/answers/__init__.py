"""What a program asks: figures and trackers of the running job, read from its log; the report as a page."""
