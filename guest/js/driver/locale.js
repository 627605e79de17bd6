// What is formatted and compared for a locale. There is no Intl, and one locale,
// English; what is asked for another, or in a form that is not known here, is a
// RangeError: nothing is answered in English that was asked for in German.
const { apply } = Reflect;

const refuse = (what) => { throw new RangeError(`${what} is not supported here: this JavaScript has no Intl and formats English only`); };

// tagOf is the locale that is asked for first, of which only may be; else it throws.
function tagOf(locales, may) {
  if (locales === null) throw new TypeError("the locales are null");
  const tag = Array.isArray(locales) ? locales[0] : locales;
  if (tag === undefined) return "en-US";
  if (!/^[a-z]{2,8}(?:-[a-z\d]{1,8})*$/i.test(String(tag))) throw new RangeError(`Incorrect locale information provided: ${tag}`);
  if (!may.test(String(tag))) refuse(`the locale ${tag}`);
  return String(tag);
}

// known gives options of which all are known; else it throws.
function known(options, names) {
  if (options === null) throw new TypeError("the options are null");
  if (options === undefined) return {};
  for (const name in options) {
    if (options[name] !== undefined && !names[name]?.(options[name])) refuse(`the option ${name}: ${String(options[name])}`);
  }
  return options;
}

const oneOf = (...values) => (value) => values.includes(value);
const digits = (least, most) => (value) => {
  if (!(Number(value) >= least && Number(value) <= most)) throw new RangeError(`${value} digits are not possible`);
  return true;
};

// ── numbers ──────────────────────────────────────────────────────────────────

const ENGLISH = /^en(?:-(?:US|GB|CA|AU|NZ|IE))?$/i, AMERICAN = /^en(?:-US)?$/i;
const SYMBOLS = { USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$", NZD: "NZ$", CHF: "CHF\u00a0", SEK: "SEK\u00a0", NOK: "NOK\u00a0", DKK: "DKK\u00a0", PLN: "PLN\u00a0", CZK: "CZK\u00a0", TRY: "TRY\u00a0", ZAR: "ZAR\u00a0", SGD: "SGD\u00a0" };
const NUMBERS = {
  style: oneOf("decimal", "percent", "currency"), currency: (code) => String(code).toUpperCase() in SYMBOLS, currencyDisplay: oneOf("symbol"), useGrouping: oneOf(true, false, "auto", "always"), notation: oneOf("standard"), localeMatcher: () => true,
  minimumFractionDigits: digits(0, 100), maximumFractionDigits: digits(0, 100), minimumIntegerDigits: digits(1, 21), signDisplay: oneOf("auto"), numberingSystem: oneOf("latn"),
};

function numberText(value, locales, given) {
  const tag = tagOf(locales, ENGLISH), o = known(given, NUMBERS), style = o.style ?? "decimal";
  const currency = style === "currency" ? String(o.currency ?? "").toUpperCase() : "";
  if (style === "currency" && !currency) throw new TypeError("Currency code is required with currency style.");
  if (currency && !AMERICAN.test(tag)) refuse(`the currency ${currency} in ${tag}`);
  const usual = currency ? (currency === "JPY" || currency === "KRW" ? 0 : 2) : 0;
  const most = o.maximumFractionDigits ?? Math.max(o.minimumFractionDigits ?? 0, currency ? usual : style === "percent" ? 0 : 3);
  const least = o.minimumFractionDigits ?? Math.min(usual, most);
  if (least > most) throw new RangeError("maximumFractionDigits value is out of range.");
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const end = style === "percent" ? "%" : "", begin = sign + (currency && SYMBOLS[currency]);
  if (Number.isNaN(value)) return `${currency && SYMBOLS[currency]}NaN${end}`;
  if (typeof value === "number" && !Number.isFinite(value)) return `${begin}∞${end}`;
  if (style === "percent") value *= typeof value === "bigint" ? 100n : 100;
  if (value < 0) value = -value;
  let [whole, part = ""] = decimal(value, Math.trunc(most)).split(".");
  while (part.length > least && part.endsWith("0")) part = part.slice(0, -1);
  part = part.padEnd(least, "0");
  whole = whole.padStart(o.minimumIntegerDigits ?? 1, "0");
  if (o.useGrouping !== false) whole = whole.replace(/\B(?=(?:\d{3})+$)/g, ",");
  return begin + (part ? `${whole}.${part}` : whole) + end;
}

const decimal = (value, most) => typeof value === "bigint" ? String(value) : value >= 1e21 ? String(BigInt(value)) : value.toFixed(most);

// ── dates, of which all are of UTC ───────────────────────────────────────────

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const NUMERIC = oneOf("numeric", "2-digit"), NAMED = oneOf("numeric", "2-digit", "long", "short");
const ZONE = { timeZone: (zone) => /^(?:UTC|GMT|Etc\/UTC|Etc\/GMT)$/i.test(zone), localeMatcher: () => true, calendar: oneOf("gregory"), numberingSystem: oneOf("latn") };
const DATES = { ...ZONE, weekday: oneOf("long", "short"), year: NUMERIC, month: NAMED, day: NUMERIC };
const TIMES = { ...ZONE, hour: NUMERIC, minute: NUMERIC, second: NUMERIC, hour12: oneOf(true, false), hourCycle: oneOf("h12", "h23") };

const two = (n) => String(n).padStart(2, "0");
const named = (names, i, form) => form === "short" ? names[i].slice(0, 3) : names[i];

function dateText(d, locales, given) {
  tagOf(locales, AMERICAN);
  let o = known(given, DATES);
  if (!o.weekday && !o.year && !o.month && !o.day) o = { year: "numeric", month: "numeric", day: "numeric" };
  const year = o.year && (o.year === "2-digit" ? two(d.getUTCFullYear() % 100) : String(d.getUTCFullYear()));
  if (d.getUTCFullYear() < 1) refuse("a year before 1");
  const day = o.day && (o.day === "2-digit" ? two(d.getUTCDate()) : String(d.getUTCDate()));
  const weekday = o.weekday && named(DAYS, d.getUTCDay(), o.weekday);
  let text;
  if (o.month === "long" || o.month === "short") {
    const month = [named(MONTHS, d.getUTCMonth(), o.month), day].filter(Boolean).join(" ");
    text = year ? month + (day ? `, ${year}` : ` ${year}`) : month;
  } else {
    const month = o.month && (o.month === "2-digit" ? two(d.getUTCMonth() + 1) : String(d.getUTCMonth() + 1));
    if (day && !month && (year || weekday)) refuse("a day without its month");
    text = [month, day, year].filter(Boolean).join("/");
  }
  return [weekday, text].filter(Boolean).join(", ");
}

function timeText(d, locales, given) {
  tagOf(locales, AMERICAN);
  let o = known(given, TIMES);
  if (o.second && !o.minute || o.minute && !o.hour) refuse("a minute without its hour");
  if (!o.hour) o = { ...o, hour: "numeric", minute: "2-digit", second: "2-digit" };
  const long = o.hour12 === false || o.hour12 === undefined && o.hourCycle === "h23";
  if (o.hour12 === false && o.hourCycle === undefined && d.getUTCHours() === 0) refuse("midnight with hour12: false (hourCycle: \"h23\" is)");
  const hour = long ? d.getUTCHours() : d.getUTCHours() % 12 || 12;
  const text = [long || o.hour === "2-digit" ? two(hour) : String(hour), o.minute && two(d.getUTCMinutes()), o.second && two(d.getUTCSeconds())].filter(Boolean).join(":");
  return long ? text : `${text} ${d.getUTCHours() < 12 ? "AM" : "PM"}`;
}

// ── comparing ────────────────────────────────────────────────────────────────

// These sort Latin letters as English does.
const SORTED = /^(?:en|de|fr|it|pt|nl)(?:-(?!u-|.*-u-|CA)[a-z\d]{2,8})*$/i;
const COLLATION = { sensitivity: oneOf("base", "accent", "case", "variant"), numeric: oneOf(true, false), usage: oneOf("sort", "search"), localeMatcher: () => true, ignorePunctuation: oneOf(false), caseFirst: oneOf("false") };
const ORDER = "\t\n\v\f\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789"; // CLDR's, of what is no letter
const MARKS = /\p{Mn}/gu, FOLDED = { ß: "ss", æ: "ae", œ: "oe", ø: "o", đ: "d", ł: "l", ı: "i" };

const rank = (c) => { const i = ORDER.indexOf(c); return i >= 0 ? i : /\p{L}|\p{N}/u.test(c) ? c.codePointAt(0) + 200 : c.codePointAt(0) / 0x110000 + 43; };
const bases = (text) => text.replace(MARKS, "").toLowerCase().replace(/[ßæœøđłı]/g, (c) => FOLDED[c]);

function byRank(a, b, numeric) {
  const split = (text) => numeric ? text.match(/\d+|[^\d]/gu) ?? [] : Array.from(text);
  const x = split(a), y = split(b);
  for (let i = 0; i < x.length && i < y.length; i++) {
    if (x[i] === y[i]) continue;
    const n = numeric && /^\d/.test(x[i]) && /^\d/.test(y[i]) ? Number(BigInt(x[i]) > BigInt(y[i])) - Number(BigInt(x[i]) < BigInt(y[i])) : rank(x[i]) - rank(y[i]);
    if (n) return Math.sign(n);
  }
  return Math.sign(x.length - y.length);
}

const byCode = (a, b) => a < b ? -1 : a > b ? 1 : 0;

function compared(one, other, locales, given) {
  tagOf(locales, SORTED);
  const o = known(given, COLLATION), sensitivity = o.sensitivity ?? "variant";
  const a = one.normalize("NFD"), b = other.normalize("NFD");
  if (a === b) return 0;
  const n = byRank(bases(a), bases(b), o.numeric);
  if (n || sensitivity === "base") return n;
  const x = a.toLowerCase(), y = b.toLowerCase();
  if (sensitivity !== "case" && x !== y) return byCode(x, y);
  if (sensitivity === "accent") return 0;
  // A small letter comes before its capital.
  return sensitivity === "case" ? byCode(b.replace(MARKS, ""), a.replace(MARKS, "")) : byCode(b, a);
}

// ── where programs find it ───────────────────────────────────────────────────

const put = (prototype, methods) => {
  for (const name of Object.keys(methods)) Object.defineProperty(prototype, name, { value: methods[name], writable: true, configurable: true });
};

// installLocale puts them in the place of the engine's, which look at no locale.
export function installLocale() {
  "use strict"; // the engine's own refuse undefined, which a sloppy function would not see
  // As the language says, their length is 0 (of localeCompare 1).
  for (const type of [Number, BigInt]) {
    const { valueOf } = type.prototype;
    put(type.prototype, { toLocaleString() { return numberText(apply(valueOf, this, []), arguments[0], arguments[1]); } });
  }
  const { getTime } = Date.prototype;
  const date = (d, text) => Number.isNaN(apply(getTime, d, [])) ? "Invalid Date" : text(new Date(apply(getTime, d, [])));
  put(Date.prototype, {
    toLocaleString() { const [l, o] = arguments; return date(this, (d) => `${dateText(d, l, known(o, ZONE))}, ${timeText(d, l, o)}`); },
    toLocaleDateString() { const [l, o] = arguments; return date(this, (d) => dateText(d, l, o)); },
    toLocaleTimeString() { const [l, o] = arguments; return date(this, (d) => timeText(d, l, o)); },
  });
  const { localeCompare, toLocaleUpperCase, toLocaleLowerCase } = String.prototype;
  const cased = (native) => (text, locales) => {
    if (locales !== undefined) tagOf(locales, /^(?!(?:tr|az|lt|el)\b)/i);
    return apply(native, text, []);
  };
  const upper = cased(toLocaleUpperCase), lower = cased(toLocaleLowerCase);
  put(String.prototype, {
    localeCompare(other) {
      apply(localeCompare, this, [other]); // refuses what is no text
      return compared(`${this}`, `${other}`, arguments[1], arguments[2]);
    },
    toLocaleUpperCase() { return upper(this, arguments[0]); },
    toLocaleLowerCase() { return lower(this, arguments[0]); },
  });
  for (const prototype of [Array.prototype, Object.getPrototypeOf(Uint8Array.prototype)]) {
    const native = prototype.toLocaleString;
    put(prototype, {
      toLocaleString() {
        if (arguments[0] === undefined && arguments[1] === undefined) return apply(native, this, []);
        const args = arguments;
        return Array.from(this, (x) => x === undefined || x === null ? "" : x.toLocaleString(args[0], args[1])).join(",");
      },
    });
  }
}
