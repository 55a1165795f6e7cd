"""Stands in for SGLang: what AReaL imports of it, and a server that answers /v1/models."""
