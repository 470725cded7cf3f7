"""A campaign over HTTP: the service, its live page, and the client (`scopeval.connect`)."""
