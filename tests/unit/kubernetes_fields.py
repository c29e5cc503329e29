"""Fields of the Kubernetes objects that are shipped, and their types.

A server drops a field that it does not know without a word, so that a slip of the pen shows as a
setting that has no effect. RayJob and what it is made of follow the API reference of KubeRay
(docs/reference/api.md, commit 0057210ed5a9, group ray.io/v1; the project is under the Apache
License 2.0). The rest are Kubernetes' own objects as of 1.31, by hand and not from a schema. Fields
that we might want are there as well; whoever uses another one looks it up and adds it.
"""

import re

# A type is a Python type, a table, a list of one of them, or {"*": type} for any keys.
ANY_TEXT = {"*": str}
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
META = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "labels": ANY_TEXT,
    "annotations": ANY_TEXT,
}
NAMED = {"name": str, "optional": bool}
CONTAINER = {
    "name": str,
    "image": str,
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "command": [str],
    "args": [str],
    "env": [{"name": str, "value": str, "valueFrom": dict}],
    "envFrom": [{"secretRef": NAMED, "configMapRef": NAMED, "prefix": str}],
    "resources": {"requests": {"*": QUANTITY}, "limits": {"*": QUANTITY}},
    "volumeMounts": [{"name": str, "mountPath": str, "subPath": str, "readOnly": bool}],
}
POD = {
    "metadata": META,
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "restartPolicy": {"Always", "OnFailure", "Never"},
        "serviceAccountName": str,
        "nodeSelector": ANY_TEXT,
        "tolerations": [dict],
        "volumes": [
            {
                "name": str,
                "configMap": {**NAMED, "defaultMode": int},
                "secret": {"secretName": str, "optional": bool},
                "emptyDir": {"medium": str, "sizeLimit": QUANTITY},
                "persistentVolumeClaim": {"claimName": str, "readOnly": bool},
            }
        ],
    },
}
HEAD = {
    "rayStartParams": ANY_TEXT,
    "template": POD,
    "serviceType": {"ClusterIP", "NodePort", "LoadBalancer"},
    "headService": dict,
    "enableIngress": bool,
}
WORKERS = {
    "groupName": str,
    "replicas": int,
    "minReplicas": int,
    "maxReplicas": int,
    "idleTimeoutSeconds": int,
    "numOfHosts": int,
    "suspend": bool,
    "rayStartParams": ANY_TEXT,
    "template": POD,
}
RAY_JOB = {
    "apiVersion": {"ray.io/v1"},
    "kind": {"RayJob"},
    "metadata": META,
    "spec": {
        "entrypoint": str,
        "runtimeEnvYAML": str,
        "jobId": str,
        "submissionMode": {"K8sJobMode", "HTTPMode", "InteractiveMode"},
        "submitterPodTemplate": POD,
        "submitterConfig": {"backoffLimit": int},
        "metadata": ANY_TEXT,
        "clusterSelector": ANY_TEXT,
        "entrypointNumCpus": float,
        "entrypointNumGpus": float,
        "entrypointResources": str,
        "activeDeadlineSeconds": int,
        "backoffLimit": int,
        "shutdownAfterJobFinishes": bool,
        "ttlSecondsAfterFinished": int,
        "suspend": bool,
        "rayClusterSpec": {
            "rayVersion": str,
            "enableInTreeAutoscaling": bool,
            "suspend": bool,
            "headGroupSpec": HEAD,
            "workerGroupSpecs": [WORKERS],
        },
    },
}
RULE = {"apiGroups": [str], "resources": [str], "verbs": [str], "resourceNames": [str]}
JOB = {
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "completions": int,
    "parallelism": int,
    "ttlSecondsAfterFinished": int,
    "template": POD,
}
OBJECTS = {
    "ServiceAccount": {"apiVersion": {"v1"}, "kind": str, "metadata": META},
    "ConfigMap": {"apiVersion": {"v1"}, "kind": str, "metadata": META, "data": ANY_TEXT},
    "Role": {
        "apiVersion": {"rbac.authorization.k8s.io/v1"},
        "kind": str,
        "metadata": META,
        "rules": [RULE],
    },
    "RoleBinding": {
        "apiVersion": {"rbac.authorization.k8s.io/v1"},
        "kind": str,
        "metadata": META,
        "roleRef": {"apiGroup": str, "kind": str, "name": str},
        "subjects": [{"apiGroup": str, "kind": str, "name": str, "namespace": str}],
    },
    "CronJob": {
        "apiVersion": {"batch/v1"},
        "kind": str,
        "metadata": META,
        "spec": {
            "schedule": str,
            "timeZone": str,
            "concurrencyPolicy": {"Allow", "Forbid", "Replace"},
            "startingDeadlineSeconds": int,
            "successfulJobsHistoryLimit": int,
            "failedJobsHistoryLimit": int,
            "suspend": bool,
            "jobTemplate": {"metadata": META, "spec": JOB},
        },
    },
    "RayJob": RAY_JOB,
}


def problems(value, kind, where=""):
    """What of a value is not as a type says, one line each."""
    if isinstance(kind, list):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        each = (problems(one, kind[0], f"{where}[{at}]") for at, one in enumerate(value))
        return [line for lines in each for line in lines]
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return [f"{where} is no object"]
        found = []
        for key, one in value.items():
            of, name = kind.get(key, kind.get("*")), f"{where}.{key}"
            found += [f"{name} is unknown"] if of is None else problems(one, of, name)
        return found
    return [] if _is(value, kind) else [f"{where} is {value!r}"]


def _is(value, kind):
    if isinstance(kind, set):
        return value in kind
    if isinstance(kind, re.Pattern):
        return isinstance(value, str | int) and kind.fullmatch(str(value)) is not None
    # For Python a truth is a number as well.
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
