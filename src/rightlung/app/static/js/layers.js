// What is drawn over a radiograph: maps, boxes, outlines. Boxes and points are fractions of the image.

/** Draw a picture (canvas) of a map over the whole image. */
export const mapLayer = (picture, opacity) => (pen, { image }) => {
  pen.globalAlpha = opacity;
  pen.drawImage(picture, 0, 0, image.columns, image.rows);
};

/** Draw boxes `{box, text, colour, dashed, strong, faint}` with their texts. */
export const boxLayer = (boxes) => (pen, pane) => {
  const taken = [];
  for (const { box, text, colour, dashed, strong, faint } of boxes) {
    const [x0, y0, x1, y1] = inPixels(box, pane.image);
    pen.globalAlpha = faint ? 0.45 : 1;
    outlined(pen, pane.line, colour, strong, dashed, () => pen.strokeRect(x0, y0, x1 - x0, y1 - y0));
    if (text) written(pen, pane, text, x0, y0, y1, colour, taken);
  }
};

/** Draw a line along points that is not closed. */
export const lineLayer = (points, colour) => (pen, pane) => {
  const path = new Path2D();
  points.forEach(([x, y], index) => path[index ? "lineTo" : "moveTo"](x * pane.image.columns, y * pane.image.rows));
  outlined(pen, pane.line, colour, false, false, () => pen.stroke(path));
  for (const [x, y] of points) {
    pen.fillStyle = colour;
    pen.fillRect(x * pane.image.columns - 3 * pane.line, y * pane.image.rows - 3 * pane.line, 6 * pane.line, 6 * pane.line);
  }
};

/** Draw a cross at the highest value of a map. */
export const peakLayer = ([x, y], colour) => (pen, pane) => {
  const [across, down, arm] = [x * pane.image.columns, y * pane.image.rows, 8 * pane.line];
  outlined(pen, pane.line, colour, false, false, () => {
    pen.beginPath();
    pen.moveTo(across - arm, down); pen.lineTo(across + arm, down);
    pen.moveTo(across, down - arm); pen.lineTo(across, down + arm);
    pen.stroke();
  });
};

/** Write a text above a box. */
export const textLayer = (text, box, colour) => (pen, pane) => {
  const [x0, y0, , y1] = inPixels(box, pane.image);
  if (text) written(pen, pane, text, x0, y0, y1, colour);
};

const inPixels = ([x0, y0, x1, y1], { rows, columns }) => [x0 * columns, y0 * rows, x1 * columns, y1 * rows];

function outlined(pen, line, colour, strong, dashed, stroke) {
  pen.lineJoin = "round";
  pen.setLineDash(dashed ? [8 * line, 6 * line] : []);
  pen.strokeStyle = "rgba(0, 0, 0, .65)"; // so that lines are seen on white bone, too
  pen.lineWidth = (strong ? 5.5 : 4) * line;
  stroke();
  pen.strokeStyle = colour;
  pen.lineWidth = (strong ? 3.5 : 2) * line;
  stroke();
}

/** Write a text where none of those in `taken` stands. */
function written(pen, { line }, text, x0, y0, y1, colour, taken = []) {
  pen.font = `600 ${13 * line}px system-ui, sans-serif`;
  pen.setLineDash([]);
  const above = y0 > 20 * line, x1 = x0 + pen.measureText(text).width + 6 * line;
  let y = above ? y0 - 5 * line : Math.min(y0 + 16 * line, y1);
  while (taken.some((one) => Math.abs(one.y - y) < 14 * line && one.x0 < x1 && x0 < one.x1)) y += 15 * line;
  taken.push({ x0, x1, y });
  pen.lineWidth = 3 * line;
  pen.strokeStyle = "rgba(0, 0, 0, .8)";
  pen.strokeText(text, x0 + 3 * line, y);
  pen.fillStyle = colour;
  pen.fillText(text, x0 + 3 * line, y);
}
