"""The reports of judges: results, probable causes, and a verdict as text, page, frame and plot."""
