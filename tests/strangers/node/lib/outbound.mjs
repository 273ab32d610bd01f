// JSON over HTTP to other parties. A kept-alive socket may die under a request that must not be
// sent twice, so every call opens its own connection.
import http from 'node:http';

const MAX_ANSWER = 1 << 20;

/**
 * Never rejects. `sent` is false only when the other party cannot have seen the request;
 * `status` is undefined when no complete answer came; `body` is undefined when it is not JSON.
 */
export function callJson(url, { method = 'POST', body, headers = {}, timeoutMs = 10_000 } = {}) {
  return new Promise((resolve) => {
    const result = { sent: false, status: undefined, body: undefined, retryAfter: undefined };
    const text = body === undefined ? undefined : JSON.stringify(body);
    const outgoing = http.request(url, {
      method,
      agent: false,
      headers: {
        accept: 'application/json',
        ...(text && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
        ...headers,
      },
    });
    const deadline = setTimeout(() => outgoing.destroy(new Error('deadline')), timeoutMs);
    const finish = () => {
      clearTimeout(deadline);
      resolve(result);
    };
    outgoing.on('socket', (socket) => socket.once('connect', () => { result.sent = true; }));
    outgoing.on('error', finish);
    outgoing.on('response', (answer) => {
      const chunks = [];
      let size = 0;
      answer.on('data', (chunk) => {
        size += chunk.length;
        if (size > MAX_ANSWER) outgoing.destroy();
        else chunks.push(chunk);
      });
      answer.on('error', finish);
      answer.on('close', finish);
      answer.on('end', () => {
        result.status = answer.statusCode;
        result.retryAfter = answer.headers['retry-after'];
        try {
          result.body = JSON.parse(Buffer.concat(chunks).toString('utf8'));
        } catch { /* stays undefined */ }
        finish();
      });
    });
    outgoing.end(text);
  });
}
