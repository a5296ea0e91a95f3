# shellcheck shell=sh disable=SC2154,SC2164
version "$(convert --version | sed 's/.*ImageMagick //')"
convert -size 1600x1200 gradient:red-blue big.png
convert big.png -resize 800x600 small.png
is "the PNG's width and height" "$(png_size small.png)" "800 600"
is "what identify says" "$(identify -format '%m %wx%h' small.png)" "PNG 800x600"
# Red above, blue below, also after a conversion to another format and back.
convert small.png small.jpg
is "the JPEG" "$(identify -format '%m %wx%h' small.jpg)" "JPEG 800x600"
is_about "the blue of the last row" "$(convert small.png -format '%[fx:p{400,599}.b]' info:)" 0.95 1
is_about "the blue of the first row" "$(convert small.png -format '%[fx:p{400,0}.b]' info:)" 0 0.05
