# shellcheck shell=sh disable=SC2154,SC2164
version "$(python3 -c 'import PIL; print(PIL.__version__)')"
python3 - <<'PY'
from PIL import Image, ImageDraw
im = Image.new("RGB", (1600, 1200), (200, 30, 60))
ImageDraw.Draw(im).rectangle((0, 0, 799, 1199), fill=(10, 200, 90))
im.save("big.png")
Image.open("big.png").resize((800, 600)).save("small.png")
Image.open("small.png").save("small.jpg", quality=90)
small = Image.open("small.png").load()
assert small[10, 300] == (10, 200, 90) and small[790, 300] == (200, 30, 60), "the colours"
jpeg = Image.open("small.jpg")
assert (jpeg.format, jpeg.size) == ("JPEG", (800, 600)), "the JPEG"
PY
is "the PNG's width and height" "$(png_size small.png)" "800 600"
