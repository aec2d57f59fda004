"""From the backend and the jobs themselves to records: starts, ends, losses, reports."""
