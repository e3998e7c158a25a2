"""The hub's protocol on the loopback address, as much of it as its client asks for."""
import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = '0123456789abcdef0123456789abcdef01234567'


class Hub:
    """Repositories by name, each a dict of files, and what was asked for.

    Attributes:
        private: repositories that only ``token`` reads.
    """

    token = 'hf_right'

    def __init__(self):
        self.repos, self.private, self.asked = {}, set(), []


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    @property
    def hub(self):
        return self.server.hub

    def answer(self, status, data=b'', **headers):
        self.send_response(status)
        for name, value in {'Content-Length': str(len(data)), **headers}.items():
            self.send_header(name.replace('_', '-'), value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(data)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path))
        if '/resolve/' not in path:  # what the client asks for besides
            self.answer(404)
            return
        owner, name, _, revision, file = path[1:].split('/', 4)
        repo = f'{owner}/{name}'
        allowed = self.headers.get('Authorization') == f'Bearer {self.hub.token}'
        if repo not in self.hub.repos or (repo in self.hub.private and not allowed):
            self.answer(404 if allowed else 401, X_Error_Code='RepoNotFound')
        elif revision not in ('main', 'v1', COMMIT):
            self.answer(404, X_Error_Code='RevisionNotFound', X_Repo_Commit=COMMIT)
        elif file not in self.hub.repos[repo]:
            self.answer(404, X_Error_Code='EntryNotFound', X_Repo_Commit=COMMIT)
        else:
            data = self.hub.repos[repo][file]
            self.answer(200, data, ETag=f'"{hashlib.sha256(data).hexdigest()}"',
                        X_Repo_Commit=COMMIT)


@contextmanager
def serving(monkeypatch, cache):
    """A hub that huggingface_hub takes for its own, with a cache of its own and without a token."""
    from huggingface_hub import constants

    server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.daemon_threads = True
    server.hub, server.address = Hub(), f'http://127.0.0.1:{server.server_port}'
    for name, value in dict(ENDPOINT=server.address, HF_HUB_CACHE=str(cache),
                            HF_HUB_OFFLINE=False, HF_TOKEN_PATH=str(cache / 'token'),
                            HF_HUB_DISABLE_PROGRESS_BARS=True,
                            HF_HUB_DISABLE_XET=True).items():  # its storage is another protocol
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(constants, 'HUGGINGFACE_CO_URL_TEMPLATE',
                        server.address + '/{repo_id}/resolve/{revision}/{filename}')
    monkeypatch.delenv('HF_TOKEN', raising=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.hub
    finally:
        server.shutdown()
        server.server_close()
