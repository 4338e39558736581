"""How many slots a master can ever run at once, as far as its name and the settings say. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_OF_YARN = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_FIRST_NUMBER = re.compile(r"\d+")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def slot_limit(master: str, settings: Mapping[str, str]) -> int | None:
    """How many slots a master can ever have. None: not to be told from here; a cluster may grow, and
    `local[*]` is what the JVM finds.

    A slot takes `spark.task.cpus` cores of one executor, and all slots of an attempt run at once.
    """
    cores_per_slot = _whole(settings, "spark.task.cpus") or 1
    if local := _LOCAL.fullmatch(master):
        return None if local[1] == "*" else int(local[1] or 1) // cores_per_slot
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        return int(cluster[1]) * (int(cluster[2]) // cores_per_slot)
    cores_max = _whole(settings, "spark.cores.max")
    return None if cores_max is None else cores_max // cores_per_slot


def check_master(master: str, environment: Mapping[str, str]) -> None:
    """OptionError if Spark knows no such master, or lacks what says where a cluster is: it would say so
    itself, behind seconds and a stack trace."""
    is_local = _LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master)
    if not is_local and master != "yarn" and not master.startswith(("spark://", "k8s://")):
        slots = _FIRST_NUMBER.search(master)
        address = master.partition(":")[2].strip("/")
        meant = (f"{known}[{slots[0]}]" if slots else known for known in ("threads", "local"))
        hint = nearest(master, (*meant, "yarn", f"spark://{address}", f"k8s://{address}"))
        raise OptionError(
            f"there is no master {master!r}{hint}: write threads[N] for slots without Spark, local[N] for a "
            "Spark on this machine, or a cluster's address: spark://HOST:PORT, yarn, or k8s://URL"
        )
    if master == "yarn" and not any(environment.get(name) for name in _OF_YARN):
        raise OptionError(
            f"--master yarn needs {' or '.join(_OF_YARN)} in the environment: the folder with the cluster's "
            "yarn-site.xml and core-site.xml; set one of them"
        )


def can_grow(master: str) -> bool:
    """Executors register with it, some of them late. A local master has all its slots from the start."""
    return _LOCAL.fullmatch(master) is None


def check_fits(parallelism: int, limit: int | None, master: str) -> None:
    """OptionError if so many slots can never run at once on this master."""
    if limit is None or parallelism <= limit:
        return
    if _LOCAL.fullmatch(master):
        what = f"use --master 'local[{parallelism}]', or less parallelism"
    else:
        what = "use a larger master or larger limits in --conf, or less parallelism"
    raise OptionError(f"parallelism={parallelism} needs as many slots at once, {master} has {limit}: {what}")


def _whole(settings: Mapping[str, str], name: str) -> int | None:
    value = settings.get(name)
    if value is None:
        return None
    if not value.isdecimal() or int(value) < 1:
        raise OptionError(f"--conf {name}={value}: it has to be a whole number of at least 1")
    return int(value)
