/** The OpenAPI document as one page of HTML: no script, nothing loaded from elsewhere. */
import type { Content, OpenApi, Operation, Parameter } from './openapi.ts';

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
};

const inHtml = (text: string): string =>
  text.replaceAll(/[&<>"]/g, (character) => ENTITIES[character] ?? character);

const STYLE = `
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
  code, pre { font-family: ui-monospace, monospace; font-size: 13px; }
  pre { overflow-x: auto; padding: .6rem; background: #8881; }
  h2 { margin-top: 2.5rem; border-bottom: 1px solid #8884; }
  h3 { margin: 1.8rem 0 .3rem; }
  table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem .8rem .15rem 0; }
  :root { color-scheme: light dark; }`;

const block = (value: unknown): string =>
  `<pre>${inHtml(JSON.stringify(value, null, 2)).replaceAll(
    /#\/components\/schemas\/(\w+)/g,
    '<a href="#schema-$1">$1</a>',
  )}</pre>`;

const details = (title: string, value: unknown): string =>
  `<details><summary>${inHtml(title)}</summary>${block(value)}</details>`;

function parameterRow({ name, in: place, required, schema, description }: Parameter): string {
  const cells = [name, place, required ? 'required' : '', JSON.stringify(schema)];
  const row = cells.map((cell) => `<td><code>${inHtml(cell)}</code></td>`).join('');
  return `<tr>${row}<td>${inHtml(description ?? '')}</td></tr>`;
}

function contentText(title: string, content: Content): string {
  return Object.entries(content)
    .map(([type, { schema }]) => details(`${title} ${type}`, schema))
    .join('');
}

function operationText(path: string, method: string, operation: Operation): string {
  const { summary, description, parameters, requestBody, responses, operationId } = operation;
  const table =
    parameters.length === 0 ? '' : `<table>${parameters.map(parameterRow).join('')}</table>`;
  const body = requestBody ? contentText('Body', requestBody.content) : '';
  const answers = Object.entries(responses)
    .map(([status, answer]) => contentText(status, answer.content))
    .join('');
  return `<h3 id="${inHtml(operationId)}"><code>${method.toUpperCase()} ${inHtml(path)}</code></h3>
<p>${inHtml(summary)}.${description === undefined ? '' : ` ${inHtml(description)}`}</p>
${table}${body}${answers}`;
}

/** The page. */
export function docsPage(document: OpenApi): string {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  const byTag = Map.groupBy(operations, ({ operation }) => operation.tags[0] ?? '');
  const sections = [...byTag].map(([tag, members]) => {
    const texts = members.map(({ path, method, operation }) =>
      operationText(path, method, operation),
    );
    return `<h2>/${inHtml(tag)}</h2>\n${texts.join('\n')}`;
  });
  const schemas = Object.entries(document.components.schemas).map(
    ([name, schema]) => `<h3 id="schema-${inHtml(name)}">${inHtml(name)}</h3>${block(schema)}`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>outlive API</title><style>${STYLE}</style></head>
<body><h1>outlive API</h1>
<p>${inHtml(document.info.description)} The same as <a href="/openapi.json">OpenAPI 3.1</a>.</p>
${sections.join('\n')}
<h2>Shapes</h2>
${schemas.join('\n')}
</body></html>
`;
}
