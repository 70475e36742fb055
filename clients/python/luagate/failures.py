"""The meaning of an error of `redis` for a call: whether it is repeated, and which error the caller gets."""

import re

import redis
from luagate.errors import NoPermission

# The reply to the call is lost, or there was no connection: the server may have run the call or not.
LOST_REPLY = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.RedisClusterException,
    redis.exceptions.ClusterError,
    OSError,
    EOFError,
)
REFUSED = re.compile(r"(?:^|-)(?:READONLY|LOADING|BUSY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN) ")  # nothing was run
READ_ONLY = re.compile(r"(?:^|-)READONLY ")
UNKNOWN = re.compile(r"unknown (?:sub)?command", re.IGNORECASE)
COMMAND = re.compile(r"'([^' ]+)'")


def is_retried(error: Exception) -> bool:
    """Whether the call is repeated with the same id."""
    if isinstance(error, (redis.exceptions.ReadOnlyError, redis.exceptions.TryAgainError, *LOST_REPLY)):
        return True
    return isinstance(error, redis.ResponseError) and bool(REFUSED.search(str(error)))


def is_read_only(error: Exception) -> bool:
    """Whether the endpoint is no longer the master."""
    return isinstance(error, redis.exceptions.ReadOnlyError) or bool(READ_ONLY.search(str(error)))


def is_unknown_command(error: Exception) -> bool:
    """Whether the server or a proxy does not have the command."""
    return isinstance(error, redis.ResponseError) and bool(UNKNOWN.search(str(error)))


def of_permission(error: Exception, prefix: str) -> NoPermission | None:
    """The error for the caller, if the server refuses the client."""
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.AuthorizationError)):
        return NoPermission(f"{error}. Check the user name and the password of the client")
    if not isinstance(error, redis.exceptions.NoPermissionError):
        return None
    said = str(error)
    if "channel" in said:
        rule = f"&{prefix}:inbox:*"
    elif command := COMMAND.search(said):
        rule = f"+{command[1]}"
    else:
        rule = f"~{prefix}:*"
    return NoPermission(f"{said}. Add the permission: ACL SETUSER <user> {rule}")
