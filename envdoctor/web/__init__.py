"""The web as pip has it configured: proxies, certificates, credentials, time limits."""
