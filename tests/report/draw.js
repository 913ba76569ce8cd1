// draw.js PAGE [narrow]: runs the script of a report.html without a browser, on a minimal stand-in for the
// document. Prints the elements that the script makes. narrow: at the width of a phone.
"use strict";
const page = require("fs").readFileSync(process.argv[2], "utf8");
const [, data, script] = page.match(/id="data">([^]*?)<\/script>\s*<script>([^]*?)<\/script>/);
const escape = text =>
  String(text).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);

class Element {
  constructor(tag) {
    this.tag = tag;
    this.attributes = this.content = "";
  }
  setAttribute(name, value) {
    this.attributes += ` ${name}="${escape(value)}"`;
  }
  append(...children) {
    this.content += children.map(child => child instanceof Element ? child : escape(child)).join("");
  }
  toString() {
    return `<${this.tag}${this.attributes}>${this.content}</${this.tag}>`;
  }
}

const document = {
  body: new Element("body"),
  getElementById: () => ({textContent: data}),
  querySelector: () => null,
  createElement: tag => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
};
const matchMedia = () => ({matches: process.argv[3] === "narrow", addEventListener: () => {}});
new Function("document", "matchMedia", script)(document, matchMedia);
process.stdout.write(`<title>${escape(document.title)}</title>${document.body}\n`);
