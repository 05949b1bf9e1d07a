// A picture of numbers, for heat maps.

/**
 * Numbers 0..1 (row by row) in the theme's colour, as a data address: it stays inside the SVG
 * when that is saved.
 */
function picture(columns, rows, value) {
  const board = el("canvas", { width: Math.max(1, columns), height: Math.max(1, rows) });
  const pen = board.getContext("2d");
  const pixels = pen.createImageData(board.width, board.height);
  const [red, green, blue] = css("--heat").split(",").map(Number);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const strength = Math.round(255 * value(column, row));
      pixels.data.set([red, green, blue, strength], 4 * (row * columns + column));
    }
  }
  pen.putImageData(pixels, 0, 0);
  return board.toDataURL();
}

/** A picture stretched over a box, on paper. */
function pictureOnPaper(address, box) {
  const x = box.left;
  const y = box.top;
  const width = box.right - box.left;
  const height = box.bottom - box.top;
  const stretched = { preserveAspectRatio: "none", style: "image-rendering:pixelated" };
  return [
    sv("rect", { class: "paper", x, y, width, height }),
    sv("image", { href: address, x, y, width, height, ...stretched }),
  ];
}
