import { useEffect, useState } from "preact/hooks"
import { Failure } from "./api"

// deceptive are characters that cannot be seen, or that change how others are shown.
const deceptive = /[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|[\u{e0000}-\u{e0fff}]/gu

// Letters shows a text that is not to be trusted to the letter: what could not be seen is a
// number.
export function Letters({ text }: { text: string }) {
	const shown = []
	let last = 0
	for (const found of text.matchAll(deceptive)) {
		shown.push(text.slice(last, found.index), <mark>{"\\u{" + (found[0].codePointAt(0) ?? 0).toString(16) + "}"}</mark>)
		last = found.index + found[0].length
	}
	shown.push(text.slice(last))
	return <bdi>{shown}</bdi>
}

export function Moment({ at }: { at: string }) {
	const time = new Date(at)
	return isNaN(time.getTime()) ? <>–</> : <time dateTime={at}>{time.toLocaleString()}</time>
}

export function Problem({ of }: { of: Failure | null }) {
	return <div role="alert">{of && <p class="problem"><Letters text={of.message} />{of.hint && <> · <Letters text={of.hint} /></>}</p>}</div>
}

// every asks now and every two seconds, while somebody looks, and says what came of it.
export function every<T>(ask: () => Promise<T>, denied: () => void): { value: T | undefined; problem: Failure | null; again: () => void } {
	const [value, set] = useState<T>()
	const [problem, fail] = useState<Failure | null>(null)
	const [round, setRound] = useState(0)
	useEffect(() => {
		let over = false, timer = 0
		const turn = async () => {
			if (!document.hidden || round === 0) {
				try {
					const got = await ask()
					if (over) return
					set(got)
					fail(null)
				} catch (e) {
					if (over) return
					const f = e instanceof Failure ? e : new Failure(0, String(e), "")
					if (f.status === 401) return denied()
					fail(f)
				}
			}
			timer = setTimeout(turn, 2000)
		}
		void turn()
		return () => { over = true; clearTimeout(timer) }
	}, [round])
	return { value, problem, again: () => setRound(n => n + 1) }
}
