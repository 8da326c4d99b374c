// How images are looked at: pan, zoom, window and level. Panes that share a view move together.

const LARGEST = 32;

/** The part of the image and the greys that are shown. `scale` is screen pixels per image pixel. */
export class View extends EventTarget {
  scale = 1;
  x = 0; // image point (pixels) at the centre of the pane
  y = 0;
  centre = 0.5;
  width = 1;
  inverted = false;
  fitted = true;

  changed() { this.dispatchEvent(new Event("change")); }

  /** Show the whole image, centred. */
  fit() { this.fitted = true; this.changed(); }

  /** Show one image pixel as one screen pixel. */
  truePixels() { this.fitted = false; this.scale = 1 / (window.devicePixelRatio || 1); this.changed(); }

  /** Zoom by a factor, keeping the image point `at` where it is. */
  zoom(factor, at = [this.x, this.y]) {
    const scale = Math.min(Math.max(this.scale * factor, 0.02), LARGEST);
    const kept = this.scale / scale;
    this.x = at[0] + (this.x - at[0]) * kept;
    this.y = at[1] + (this.y - at[1]) * kept;
    this.scale = scale;
    this.fitted = false;
    this.changed();
  }

  /** Move by screen pixels. */
  pan(across, down) {
    this.x -= across / this.scale;
    this.y -= down / this.scale;
    this.fitted = false;
    this.changed();
  }

  /** Set the window (fractions of the image's range of greys). */
  setWindow(centre, width) {
    this.centre = Math.min(Math.max(centre, 0), 1);
    this.width = Math.min(Math.max(width, 0.01), 2);
    this.changed();
  }

  invert() { this.inverted = !this.inverted; this.changed(); }

  /** Undo pan, zoom, window and inversion; `first` is the window of a new image. */
  reset(first = this.first) {
    this.first = first ?? [0.5, 1];
    Object.assign(this, { fitted: true, centre: this.first[0], width: this.first[1], inverted: false });
    this.changed();
  }
}

/** Return the grey (0–255) of each of the 65,536 pixel values under a view's window. */
export function greys(view) {
  const table = new Uint8ClampedArray(65536), low = view.centre - view.width / 2;
  for (let value = 0; value < 65536; value++) {
    const share = Math.min(Math.max((value / 65535 - low) / view.width, 0), 1);
    table[value] = Math.round(255 * (view.inverted ? 1 - share : share));
  }
  return table;
}

/** Return presets `{name: [centre, width]}` from the percentiles of an image's pixels. */
export function presets(pixels) {
  const counts = new Uint32Array(1024), step = Math.max(1, Math.floor(pixels.length / 200000));
  let total = 0;
  for (let index = 0; index < pixels.length; index += step, total++) counts[pixels[index] >> 6]++;
  const at = (share) => {
    let seen = 0;
    for (let bin = 0; bin < counts.length; bin++) if ((seen += counts[bin]) >= share * total) return bin / 1023;
    return 1;
  };
  const between = (low, high) => {
    const [first, last] = [at(low), at(high)];
    return [(first + last) / 2, Math.max(last - first, 0.05)];
  };
  return { Full: [0.5, 1], Auto: between(0.01, 0.99), Lungs: between(0.01, 0.6), Mediastinum: between(0.4, 0.995),
    Bones: between(0.6, 0.999) };
}
