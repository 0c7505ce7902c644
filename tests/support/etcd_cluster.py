"""Real etcd clusters for tests.

Every member has a loopback address of its own, so that ports are fixed and a member that comes back finds them free.
Members may also be given addresses, and commands to begin with: `["ip", "netns", "exec", "name"]` puts one into a
network namespace.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

CLIENT_PORT = 2379
PEER_PORT = 2380
START_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 30.0

FILL_BYTES = 1 << 20
"""How much is written at once to fill a member: less than the 1.5 MiB that etcd takes in a request."""

_READY = "serving client traffic"
_numbers = itertools.count(1)

_POST = """if True:
    import ssl, sys, urllib.request
    url, token, *tls = sys.argv[1:]
    context = None
    if tls:
        context = ssl.create_default_context(cafile=tls[0])
        context.load_cert_chain(tls[1], tls[2])
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(url, sys.stdin.buffer.read(), {"Authorization": token} if token else {})
    sys.stdout.buffer.write(opener.open(request, timeout=30).read())
"""


class Certificates:
    """An authority of our own and what it has signed, all of it in a directory."""

    def __init__(self, directory, hosts):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ca_cert = str(self.directory / "ca.pem")
        self._ca_key = str(self.directory / "ca.key")
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", "/CN=authority", "-keyout", self._ca_key, "-out", self.ca_cert),
        )
        names = ",".join(f"IP:{host}" for host in hosts)
        self.server_cert, self.server_key = self._sign("server", names)
        self.client_cert, self.client_key = self._sign("client", "DNS:client")

    def _sign(self, name, alternative_names):
        cert, key, request = (str(self.directory / f"{name}.{kind}") for kind in ("pem", "key", "csr"))
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative_names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", key, "-out", request),
        )
        self._openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca_cert, "-CAkey", self._ca_key, "-CAcreateserial"),
            *("-days", "2", "-extfile", str(extensions), "-out", cert),
        )
        return cert, key

    def _openssl(self, *words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=REQUEST_TIMEOUT_S)


class EtcdMember:
    def __init__(self, name, host, directory, command):
        self.name = name
        self.host = host
        self.directory = directory
        self.command = command
        self.process = None
        self.endpoint = (host, CLIENT_PORT)
        self._ready = threading.Event()
        self._reader = None

    def start(self, options):
        self._ready.clear()
        self.process = subprocess.Popen(
            # Nothing is left behind if the tests are killed.
            [*self.command, "setpriv", "--pdeathsig", "KILL", "etcd", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]},
        )
        self._reader = threading.Thread(target=self._read, args=[self.process.stderr], daemon=True)
        self._reader.start()

    def _read(self, stderr):
        with (self.directory / f"{self.name}.log").open("ab") as log:
            for line in stderr:
                log.write(line)
                log.flush()
                if _READY.encode() in line:
                    self._ready.set()
        self._ready.set()

    def wait_until_ready(self):
        assert self._ready.wait(START_TIMEOUT_S), f"etcd {self.name} is not ready: {self.log[-2000:]}"
        assert self.process.poll() is None, f"etcd {self.name} ended: {self.log[-2000:]}"

    @property
    def log(self):
        return (self.directory / f"{self.name}.log").read_text(errors="replace")

    def kill(self):
        """SIGKILL: no goodbye to the others, none to clients."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            self.process.stderr.close()
            self.process = None


class EtcdCluster:
    """Members that run from the `with` on. `hosts` and `commands` have one for each; `with_tls` makes certificates.

    Clients have to show one then, too, unless `wants_client_certs` is false. `options` are more words for the command
    line of every member.
    """

    def __init__(self, size, directory, hosts=None, commands=None, with_tls=False, options=(), wants_client_certs=True):
        self._options = options
        self._wants_client_certs = wants_client_certs
        self.directory = Path(directory)
        self._token = self.directory.name
        self.directory.mkdir(parents=True, exist_ok=True)
        number = next(_numbers)
        pid = os.getpid()
        hosts = hosts or [f"127.{64 + number % 128}.{pid % 256}.{1 + pid // 256 % 64 * 4 + n}" for n in range(size)]
        commands = commands or [[]] * size
        self.certificates = Certificates(self.directory / "certificates", hosts) if with_tls else None
        self.members = [
            EtcdMember(f"m{n}", host, self.directory, command)
            for n, (host, command) in enumerate(zip(hosts, commands, strict=True))
        ]

    @property
    def endpoints(self):
        return [member.endpoint for member in self.members]

    def __enter__(self):
        try:
            for number in range(len(self.members)):
                self._start(number, "new")
            for member in self.members:
                member.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Kill the members and remove their data: 120 MiB each, of which all tests would leave dozens of GiB."""
        for member in self.members:
            member.kill()
            shutil.rmtree(self.directory / f"{member.name}.etcd", ignore_errors=True)

    def kill(self, number):
        self.members[number].kill()

    def restart(self, number):
        """Bring back a member that was killed, with what it had written."""
        self._start(number, "existing")
        self.members[number].wait_until_ready()

    def replace(self, number, token=""):
        """Start a member anew with nothing in it; with another token it is another cluster."""
        self.members[number].kill()
        shutil.rmtree(self.directory / f"{self.members[number].name}.etcd")
        self._token = token or self._token
        self._start(number, "new")
        self.members[number].wait_until_ready()

    def leader(self):
        """The number of the member that leads, as the others that run see it."""
        for member in self.members:
            if member.process is not None:
                status = self.post(member, "maintenance/status")
                leader = status.get("leader", "0")
                numbers = {self.post(m, "maintenance/status")["header"]["member_id"]: n for n, m in self._running()}
                if leader in numbers:
                    return numbers[leader]
        raise AssertionError("nobody leads")

    def _running(self):
        return [(number, member) for number, member in enumerate(self.members) if member.process is not None]

    def compact(self, revision):
        """Forget what was before a revision."""
        self.post(self.members[0], "kv/compaction", {"revision": revision, "physical": True})

    def fill(self):
        """Write until etcd raises the alarm NOSPACE; `--quota-backend-bytes` in `options` says how much that takes."""
        member = self.members[0]
        value = base64.b64encode(bytes(FILL_BYTES)).decode()
        for number in itertools.count():
            key = base64.b64encode(b"filler/%d" % number).decode()
            try:
                self.post(member, "kv/put", {"key": key, "value": value})
            except AssertionError:
                break
        assert "NOSPACE" in json.dumps(self.post(member, "maintenance/alarm", {"action": "GET"}))

    def require_passwords(self, password):
        """From now on there is a user `root`, and everybody else is refused."""
        member = self.members[0]
        self.post(member, "auth/user/add", {"name": "root", "password": password})
        self.post(member, "auth/role/add", {"name": "root"})
        self.post(member, "auth/user/grant", {"user": "root", "role": "root"})
        self.post(member, "auth/enable")

    def post(self, member, path, message=None, token=""):
        """A request by etcd's HTTP interface, from where the member is."""
        tls = self.certificates
        url = f"{self._scheme}://{member.host}:{CLIENT_PORT}/v3/{path}"
        files = [tls.ca_cert, tls.client_cert, tls.client_key] if tls else []
        command = [*member.command, sys.executable, "-c", _POST, url, token, *files]
        ran = subprocess.run(
            command,
            input=json.dumps(message or {}),
            capture_output=True,
            text=True,
            timeout=REQUEST_TIMEOUT_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    @property
    def _scheme(self):
        return "https" if self.certificates else "http"

    def _start(self, number, state):
        member = self.members[number]
        client, peer = f"{self._scheme}://{member.host}:{CLIENT_PORT}", f"http://{member.host}:{PEER_PORT}"
        options = {
            "name": member.name,
            "data-dir": self.directory / f"{member.name}.etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"{other.name}=http://{other.host}:{PEER_PORT}" for other in self.members),
            "initial-cluster-state": state,
            "initial-cluster-token": self._token,
            "heartbeat-interval": 100,
            "election-timeout": 1000,
            "logger": "zap",
            "log-level": "info",
        }
        if self.certificates:
            options["cert-file"] = self.certificates.server_cert
            options["key-file"] = self.certificates.server_key
        if self.certificates and self._wants_client_certs:
            options["trusted-ca-file"] = self.certificates.ca_cert
            options["client-cert-auth"] = "true"
        member.start([*(f"--{name}={value}" for name, value in options.items()), *self._options])
