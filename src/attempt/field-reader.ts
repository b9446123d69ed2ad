/** Typed reading of launch.json, with a sentence for what is wrong. */
import path from 'node:path';
import { isObject, type JsonObject } from './json.ts';

/** launch.json cannot be used; the message is a sentence for the journal. */
export class LaunchFileError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'LaunchFileError';
  }
}

/** Takes typed fields out of an object, or says which one is wrong. */
export class FieldReader {
  readonly where: string;
  readonly #fields: JsonObject;

  constructor(fields: JsonObject, where: string) {
    this.#fields = fields;
    this.where = where;
  }

  text(name: string): string {
    const value = this.#fields[name];
    return typeof value === 'string' && value !== '' ? value : this.#refuse(name, 'a text');
  }

  /** An object of known fields only: one that is not known could change what the others mean. */
  known(...names: readonly string[]): this {
    const surplus = Object.keys(this.#fields).find((name) => !names.includes(name));
    if (surplus !== undefined) throw new LaunchFileError(`${this.where}: ${surplus} is unknown`);
    return this;
  }

  /** One of a few words. */
  word<Word extends string>(name: string, words: readonly Word[]): Word {
    const found = words.find((word) => word === this.#fields[name]);
    return found ?? this.#refuse(name, `one of ${words.join(', ')}`);
  }

  /** A person's words: may be empty, may be none. */
  note(name: string): string | null {
    const value = this.#fields[name];
    return typeof value === 'string' || value === null ? value : this.#refuse(name, 'a text');
  }

  flag(name: string): boolean {
    const value = this.#fields[name];
    return typeof value === 'boolean' ? value : this.#refuse(name, 'true or false');
  }

  /** A field that is there, whatever it holds. */
  any(name: string): unknown {
    if (this.#fields[name] === undefined) this.#refuse(name, 'there');
    return this.#fields[name];
  }

  has(name: string): boolean {
    return this.#fields[name] !== undefined;
  }

  object(name: string): FieldReader {
    const value = this.#fields[name];
    if (!isObject(value)) return this.#refuse(name, 'an object');
    return new FieldReader(value, `${this.where}: ${name}`);
  }

  objects(name: string): readonly FieldReader[] {
    const value = this.#fields[name];
    if (!Array.isArray(value)) return this.#refuse(name, 'a list');
    return value.map((item: unknown, index) =>
      isObject(item)
        ? new FieldReader(item, `${this.where}: ${name}[${index}]`)
        : this.#refuse(`${name}[${index}]`, 'an object'),
    );
  }

  /** Absent in files of a daemon before this one. */
  textIfAny(name: string): string | null {
    return this.#fields[name] === undefined ? null : this.optionalText(name);
  }

  optionalText(name: string): string | null {
    return this.#fields[name] === null ? null : this.text(name);
  }

  absolutePath(name: string): string {
    const value = this.text(name);
    return path.isAbsolute(value) ? value : this.#refuse(name, 'an absolute path');
  }

  count(name: string): number {
    const value = this.#fields[name];
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0) return value;
    return this.#refuse(name, 'a whole number');
  }

  list(name: string): readonly string[] {
    const value = this.#fields[name];
    if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value;
    return this.#refuse(name, 'a list of texts');
  }

  filledList(name: string): readonly string[] {
    const value = this.list(name);
    return value[0] ? value : this.#refuse(name, 'a list that begins with a program');
  }

  texts(name: string): Readonly<Record<string, string>> {
    const value = this.#fields[name];
    if (!isObject(value)) return this.#refuse(name, 'an object of texts');
    const entries = Object.entries(value).map(([key, item]): [string, string] =>
      typeof item === 'string' ? [key, item] : this.#refuse(`${name}.${key}`, 'a text'),
    );
    return Object.fromEntries(entries);
  }

  #refuse(name: string, wanted: string): never {
    throw new LaunchFileError(`${this.where}: ${name} is not ${wanted}`);
  }
}
