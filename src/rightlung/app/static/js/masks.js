// Masks as runs (the API), as outlines (drawing) and from canvases (what a reader painted).

import { h } from "./dom.js";

/** Return the outline of a mask `{size: [height, width], runs}` as a layer of line segments along pixel edges. */
export function maskLayer(mask, colour, strong = false) {
  const edges = traced(mask), [height, width] = mask.size;
  return (pen, pane) => {
    pen.save();
    pen.scale(pane.image.columns / width, pane.image.rows / height);
    const line = (pane.line * width) / pane.image.columns;
    for (const [style, extra] of [["rgba(0, 0, 0, .6)", 2], [colour, 0]]) {
      pen.strokeStyle = style;
      pen.lineWidth = ((strong ? 3.5 : 2) + extra) * line;
      pen.lineCap = "square";
      pen.stroke(edges);
    }
    pen.restore();
  };
}

const known = new WeakMap();

function traced(mask) {
  if (known.has(mask)) return known.get(mask);
  const [height, width] = mask.size, pixels = decoded(mask), edges = new Path2D();
  const at = (row, column) => row >= 0 && row < height && column >= 0 && column < width && pixels[row * width + column] === 1;
  for (let row = 0; row <= height; row++) {
    for (let column = 0, begun = -1; column <= width; column++) { // edges between a row and the one above it
      const edge = column < width && at(row, column) !== at(row - 1, column);
      if (edge && begun < 0) begun = column;
      if (!edge && begun >= 0) { edges.moveTo(begun, row); edges.lineTo(column, row); begun = -1; }
      if (at(row, column) !== at(row, column - 1)) { edges.moveTo(column, row); edges.lineTo(column, row + 1); }
    }
  }
  known.set(mask, edges);
  return edges;
}

function decoded({ size: [height, width], runs }) {
  const pixels = new Uint8Array(height * width);
  let place = 0;
  runs.forEach((length, index) => {
    if (index % 2) pixels.fill(1, place, place + length);
    place += length;
  });
  return pixels;
}

/** Return the box around a mask, in fractions of the image. */
export function boxOf(mask) {
  const [height, width] = mask.size;
  let place = 0, [x0, y0, x1, y1] = [width, height, 0, 0];
  mask.runs.forEach((length, index) => {
    if (index % 2 && length) {
      const [first, last] = [place, place + length - 1], rows = [Math.floor(first / width), Math.floor(last / width)];
      [y0, y1] = [Math.min(y0, rows[0]), Math.max(y1, rows[1] + 1)];
      [x0, x1] = rows[0] === rows[1] ? [Math.min(x0, first % width), Math.max(x1, (last % width) + 1)] : [0, width];
    }
    place += length;
  });
  return [x0 / width, y0 / height, x1 / width, y1 / height];
}

/** Return the runs of a canvas: pixels that are at least half opaque belong to the mask; null if there are none. */
export function maskOf(canvas) {
  const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const runs = [];
  let value = 0, length = 0, any = false;
  for (let index = 3; index < data.length; index += 4) {
    const here = data[index] >= 128 ? 1 : 0;
    if (here !== value) { runs.push(length); value = here; length = 0; any = true; }
    length++;
  }
  runs.push(length);
  return any ? { size: [height, width], runs } : null;
}

/** Return the runs of a polygon (fractions of the image) on an image of a size. */
export function maskOfPolygon(points, rows, columns) {
  const canvas = h("canvas", { width: columns, height: rows }), pen = canvas.getContext("2d");
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x * columns, y * rows);
  pen.fill();
  return maskOf(canvas);
}
