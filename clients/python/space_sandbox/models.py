"""The API's own types, as the OpenAPI document has them. Fields and words of a newer server are passed over or kept."""

from ._generated import *  # noqa: F403
