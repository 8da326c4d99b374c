// Heatmaps as pictures: resampling on the grid's extent, colour maps, differences.

import { h } from "./dom.js";

const MAPS = {
  heat: [[0, 0, 0], [90, 20, 110], [200, 50, 70], [250, 150, 30], [255, 250, 170]], // as in core/plotting.py
  viridis: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]],
  ice: [[0, 0, 0], [20, 60, 130], [30, 130, 200], [110, 210, 240], [235, 255, 255]],
  white: [[255, 255, 255], [255, 255, 255]],
};
const FALL = [60, 160, 255];
const RISE = [255, 140, 40];
const FAINTEST = 0.1; // least opacity of a map, however much its model abstains
const SIDE = 256;
export const TRUTH = "rgb(80, 220, 120)";
export const PREDICTED = "rgb(255, 170, 60)";
export const OWN = "rgb(110, 180, 255)";
export const COLOUR_MAPS = [["heat", "Heat"], ["viridis", "Viridis"], ["ice", "Ice"], ["white", "White"]];

/** Return the colour of a share from 0 to 1. */
export function colourOf(name, share) {
  const stops = MAPS[name] ?? MAPS.heat;
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  return stops[low].map((part, channel) => part + (place - low) * (stops[low + 1][channel] - part));
}

/** Return a map of the API with its values in one array (once). */
function flat(map) {
  if (!(map.values instanceof Float32Array)) map.values = Float32Array.from(map.values.flat());
  return map.values;
}

/** Bilinear value of a map at a point of the image (fractions); 0 outside its extent. */
function valueAt(map, x, y) {
  const [x0, y0, x1, y1] = map.extent;
  const across = (x - x0) / (x1 - x0), down = (y - y0) / (y1 - y0);
  if (across < 0 || across > 1 || down < 0 || down > 1) return 0;
  const column = Math.min(Math.max(across * map.cols - 0.5, 0), map.cols - 1);
  const row = Math.min(Math.max(down * map.rows - 0.5, 0), map.rows - 1);
  const left = Math.floor(column), top = Math.floor(row);
  const right = Math.min(left + 1, map.cols - 1), bottom = Math.min(top + 1, map.rows - 1);
  const values = flat(map), at = (r, c) => values[r * map.cols + c];
  const upper = at(top, left) + (column - left) * (at(top, right) - at(top, left));
  const lower = at(bottom, left) + (column - left) * (at(bottom, right) - at(bottom, left));
  return upper + (row - top) * (lower - upper);
}

/** Values of a map over the whole image, `SIDE` × `SIDE`. */
function resampled(map) {
  return Float32Array.from({ length: SIDE * SIDE }, (_, index) =>
    valueAt(map, ((index % SIDE) + 0.5) / SIDE, (Math.floor(index / SIDE) + 0.5) / SIDE));
}

const largest = (values) => values.reduce((most, value) => Math.max(most, value), 0) || 1;

/** Values of a map over the whole image that sum to 1. */
function shares(map) {
  const values = resampled(map), total = values.reduce((sum, value) => sum + value, 0) || 1;
  return values.map((value) => value / total);
}

function picture(paint) {
  const canvas = h("canvas", { width: SIDE, height: SIDE }), pen = canvas.getContext("2d"), image = pen.createImageData(SIDE, SIDE);
  for (let index = 0; index < SIDE * SIDE; index++) {
    const [colour, alpha] = paint(index);
    image.data.set([...colour, 255 * alpha], 4 * index);
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** Return a canvas that covers the image; the map is scaled to its maximum. The more the model abstains, the fainter. */
export function painted(map, name = "heat", abstention = 0) {
  const values = resampled(map), most = largest(values), opacity = Math.max(FAINTEST, 1 - abstention);
  const table = Array.from({ length: 256 }, (_, step) => colourOf(name, step / 255));
  return picture((index) => [table[Math.round((255 * values[index]) / most)], (opacity * values[index]) / most]);
}

/** Return a canvas of the difference of two maps, each scaled to sum 1: orange where `after` is higher, blue where lower. */
export function difference(before, after) {
  const first = shares(before), second = shares(after), most = Math.max(largest(first), largest(second));
  return picture((index) => {
    const change = (second[index] - first[index]) / most;
    return [change > 0 ? RISE : FALL, Math.abs(change)];
  });
}

/** Return how much of the mass of a map moved, 0 (the same) to 1 (nothing in common): total variation. */
export function moved(before, after) {
  const first = shares(before), second = shares(after);
  return first.reduce((sum, value, index) => sum + Math.abs(value - second[index]), 0) / 2;
}
