"""Telling people what became of their jobs: webhooks, mail, and commands of the operator."""
