"""A Pub/Sub for tests: Google's own fake (pstest, of the Go client), built once where there is Go."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Self

import platformdirs
import pytest

PROJECT = "shop"
_GO = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
WHY_NOT = "" if _GO else "there is no Go here to build Google's fake of Pub/Sub: apt-get install golang-go"
"""Why there is none; empty: there is one."""
_MODULE = "module onceflow/pstest\n\ngo 1.21\n\nrequire cloud.google.com/go/pubsub v1.49.0\n"
_MAIN = r"""package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"cloud.google.com/go/pubsub/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/pstest"
)

type given struct {
	Data       []byte
	Attributes map[string]string
	Key        string
}

func main() {
	server := pstest.NewServer()
	answer := func(path string, do func(topic, subscription string, body []byte) (any, error)) {
		http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			name := r.URL.Query().Get("name")
			body, err := io.ReadAll(r.Body)
			var found any
			if err == nil {
				found, err = do("projects/shop/topics/"+name, "projects/shop/subscriptions/"+name, body)
			}
			if err != nil {
				http.Error(w, err.Error(), 500)
				return
			}
			json.NewEncoder(w).Encode(found)
		})
	}
	answer("/create", func(topic, subscription string, _ []byte) (any, error) {
		ctx := context.Background()
		if _, err := server.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
			return nil, err
		}
		made := &pubsubpb.Subscription{Name: subscription, Topic: topic, AckDeadlineSeconds: 10}
		_, err := server.GServer.CreateSubscription(ctx, made)
		return nil, err
	})
	answer("/publish", func(topic, _ string, body []byte) (any, error) {
		var all []given
		if err := json.Unmarshal(body, &all); err != nil {
			return nil, err
		}
		asked := &pubsubpb.PublishRequest{Topic: topic}
		for _, each := range all {
			message := &pubsubpb.PubsubMessage{Data: each.Data, Attributes: each.Attributes}
			message.OrderingKey = each.Key
			asked.Messages = append(asked.Messages, message)
		}
		done, err := server.GServer.Publish(context.Background(), asked)
		return done.GetMessageIds(), err
	})
	answer("/messages", func(topic, _ string, _ []byte) (any, error) {
		waiting, deliveries := 0, 0
		for _, message := range server.Messages() {
			if message.Topic != topic {
				continue
			}
			if message.Acks == 0 {
				waiting++
			}
			deliveries += message.Deliveries
		}
		return map[string]int{"waiting": waiting, "deliveries": deliveries}, nil
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(server.Addr, listener.Addr())
	go http.Serve(listener, nil)
	io.Copy(io.Discard, os.Stdin) // whoever started it is gone
}
"""


@cache
def built() -> Path:
    """The fake's binary. Skips the test if it can't be built: without the module proxy, say."""
    digest = hashlib.sha256((_MODULE + _MAIN).encode()).hexdigest()[:8]
    binary = platformdirs.user_cache_path("onceflow", appauthor=False) / f"pstest-{digest}" / "pstest"
    if binary.exists():
        return binary
    assert _GO
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "go.mod").write_text(_MODULE)
        Path(folder, "main.go").write_text(_MAIN)
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
        made = subprocess.run(
            # Compiled for a few tests: not optimised, without what a debugger reads.
            [_GO, "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", "pstest", "."],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if made.returncode:
            pytest.skip(f"Google's fake of Pub/Sub can't be built here: {made.stderr[-300:].strip()}")
        binary.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(folder, "pstest"), binary.with_suffix(f".{os.getpid()}"))
        binary.with_suffix(f".{os.getpid()}").rename(binary)
    return binary


class PubSubServer:
    """The fake on ports of loopback. What it was told is gone when it ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [built()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout
        self.host, self._control = self._process.stdout.readline().decode().split()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """It and all that it has are gone."""
        self._process.kill()
        self._process.communicate()

    def create(self, name: str) -> str:
        """A topic, and a subscription of that name."""
        self._ask("create", name)
        return name

    def publish(self, name: str, bodies: Iterable[bytes], **of_each: Any) -> list[str]:
        """Messages with these attributes and this ordering key (Attributes=, Key=), and their ids."""
        given = [{"Data": b64encode(body).decode(), **of_each} for body in bodies]
        ids: list[str] = self._ask("publish", name, json.dumps(given).encode())
        return ids

    def waiting(self, name: str) -> int:
        """How many messages nobody has acknowledged."""
        return int(self._ask("messages", name)["waiting"])

    def deliveries(self, name: str) -> int:
        """How often messages were delivered."""
        return int(self._ask("messages", name)["deliveries"])

    def _ask(self, what: str, name: str, body: bytes = b"") -> Any:
        url = f"http://{self._control}/{what}?{urllib.parse.urlencode({'name': name})}"
        with urllib.request.urlopen(url, body, timeout=60) as answer:
            return json.load(answer)
