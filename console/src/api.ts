// What the console asks the server for. Paths are relative to the page, so that it works
// below any path of a proxy's.

export interface Who { id: string; name: string; tools: string[] | null; expires_at?: string; key?: string }

export interface Session {
	session_id: string; name: string; language: string; isolation: string; image: string; state: string;
	created_at: string; last_used_at: string; expires_at: string; execution_count: number; waiting: boolean;
}

export interface Approval {
	id: string; owner: string; session_id: string; server: string; tool: string; description?: string;
	arguments_text: string; arguments_sha256: string; state: string; created_at: string; expires_at: string;
}

// Failure is an error that the server answered with, or that it did not answer.
export class Failure extends Error {
	constructor(readonly status: number, message: string, readonly hint: string) { super(message) }
}

// The key is one half of what lets this browser in. Pages of other origins, those of other
// ports of this host among them, do not have it.
const keyName = "paddock-key"

export function key(): string { return localStorage.getItem(keyName) ?? "" }

async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
	const headers: Record<string, string> = { Accept: "application/json" }
	if (key()) headers["X-Paddock-Key"] = key()
	if (body !== undefined) headers["Content-Type"] = "application/json"
	let answer: Response
	try {
		answer = await fetch(path, { method, headers, credentials: "same-origin", redirect: "error", body: body === undefined ? null : JSON.stringify(body) })
	} catch {
		throw new Failure(0, "the server does not answer", "")
	}
	const content = await answer.json().catch(() => ({}))
	if (!answer.ok) {
		const e = content.error ?? {}
		throw new Failure(answer.status, String(e.message ?? answer.statusText), String(e.hint ?? ""))
	}
	return content as T
}

export async function signIn(by: { ticket: string } | { token: string }): Promise<Who> {
	const who = await ask<Who>("POST", "api/v1/signin", by)
	localStorage.setItem(keyName, who.key ?? "")
	return who
}

export async function signOut(): Promise<void> {
	await ask("POST", "api/v1/signout")
	localStorage.removeItem(keyName)
}

export const whoami = () => ask<Who>("GET", "api/v1/whoami")
export const sessions = async () => (await ask<{ sessions: Session[] }>("GET", "console/sessions")).sessions
export const approvals = async () => (await ask<{ approvals: Approval[] }>("GET", "api/v1/approvals?state=pending")).approvals
export const decide = (id: string, grant: boolean, reason: string) =>
	ask<Approval>("POST", "api/v1/approvals/" + encodeURIComponent(id) + (grant ? "/grant" : "/deny"), { reason })
