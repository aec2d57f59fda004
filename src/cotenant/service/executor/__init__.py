"""From transitions to the backend: intents are journaled, acts happen outside any lock."""
