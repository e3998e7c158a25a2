"""A headless Chromium, driven over a pipe by its DevTools protocol; no package is needed."""
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, (
    'chromium', 'chromium-browser', 'google-chrome', 'chrome'))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason='no Chromium is installed (apt-get install chromium)')


class Browser:
    """One tab. Messages of the console and addresses that were asked for are kept."""

    def __init__(self, folder: Path, timeout: float = 120):
        self.timeout, self.number, self.buffer = timeout, 0, b''
        self.messages, self.requests, self.events = [], [], []
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()
        # Chromium reads its commands from 3 and answers on 4.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ['bash', '-c', shell, str(CHROMIUM), '--headless', '--no-sandbox', '--disable-gpu',
             '--disable-dev-shm-usage', '--hide-scrollbars', '--remote-debugging-pipe',
             f'--user-data-dir={folder}', 'about:blank'],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        target = self.send('Target.createTarget', url='about:blank')['targetId']
        attached = self.send('Target.attachToTarget', targetId=target, flatten=True)
        self.session = attached['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.send(f'{domain}.enable')

    def send(self, method: str, **params):
        """The result of one command."""
        self.number += 1
        message = dict(id=self.number, method=method, params=params)
        if self.session:
            message['sessionId'] = self.session
        os.write(self.output, json.dumps(message).encode() + b'\0')
        while True:
            answer = self._receive()
            if answer.get('id') == self.number:
                assert 'error' not in answer, (method, answer['error'])
                return answer['result']

    def _receive(self):
        end = time.monotonic() + self.timeout
        while b'\0' not in self.buffer:
            ready, _, _ = select.select([self.input], [], [], max(0, end - time.monotonic()))
            part = os.read(self.input, 1 << 20) if ready else b''
            if not part:
                raise TimeoutError('Chromium does not answer')
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b'\0')
        told = json.loads(text)
        method, params = told.get('method', ''), told.get('params', {})
        if method in ('Runtime.consoleAPICalled', 'Runtime.exceptionThrown', 'Log.entryAdded'):
            self.messages.append(params)
        elif method == 'Network.requestWillBeSent':
            self.requests.append(params['request']['url'])
        self.events.append(method)
        return told

    def open(self, path: Path, width: int = 1280) -> None:
        """Shows a file in a window so wide."""
        self.send('Emulation.setDeviceMetricsOverride', width=width, height=900,
                  deviceScaleFactor=1, mobile=False)
        self.messages, self.requests, self.events = [], [], []
        self.send('Page.navigate', url=path.as_uri())
        while 'Page.loadEventFired' not in self.events:
            self._receive()

    def run(self, code: str):
        """The value of an expression in the page."""
        told = self.send('Runtime.evaluate', expression=code, returnByValue=True,
                         awaitPromise=True, userGesture=True)
        assert 'exceptionDetails' not in told, told['exceptionDetails']
        return told['result'].get('value')

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.output)
            os.close(self.input)
        self.process.terminate()
        self.process.wait(30)
