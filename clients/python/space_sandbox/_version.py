"""The version of this client, sent as `User-Agent`."""

VERSION = "0.1.0"
