// Builds the page into the folder named on the command line: one script, one style sheet, the page and its icon.
import { copyFile, mkdir } from "node:fs/promises";
import { build } from "esbuild";

const out = process.argv[2];
if (!out) throw new Error("usage: node build.mjs FOLDER");
await mkdir(out, { recursive: true });
await build({
  entryPoints: { page: "src/main.tsx" },
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  minify: true,
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: out,
  logLevel: "warning",
});
await build({ entryPoints: { page: "src/page.css" }, minify: true, outdir: out, logLevel: "warning" });
for (const name of ["index.html", "icon.svg"]) await copyFile(`src/${name}`, `${out}/${name}`);
