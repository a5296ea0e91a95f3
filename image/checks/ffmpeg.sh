# shellcheck shell=sh disable=SC2154,SC2164
version "$(ffmpeg -version | sed 's/^ffmpeg version //')"

# probe FILE STREAM FIELD: a field of a stream, by ffprobe.
probe()
{
    ffprobe -v error -select_streams "$2" -show_entries "$3" -of default=nokey=1:noprint_wrappers=1 "$1"
}

ffmpeg -v error -f lavfi -i testsrc=size=320x240:rate=25:duration=2 -f lavfi -i sine=frequency=440:duration=2 \
    -c:v libx264 -pix_fmt yuv420p -preset ultrafast -c:a aac -shortest film.mp4
is "the film's codec" "$(probe film.mp4 v:0 stream=codec_name)" h264
is "its size" "$(probe film.mp4 v:0 stream=width,height | tr '\n' ' ')" "320 240 "
is "its sound" "$(probe film.mp4 a:0 stream=codec_name)" aac
is_about "its length" "$(probe film.mp4 v:0 format=duration)" 1.9 2.2
is "its pictures" "$(ffprobe -v error -count_frames -select_streams v:0 -show_entries stream=nb_read_frames \
    -of default=nokey=1:noprint_wrappers=1 film.mp4)" 50

ffmpeg -v error -i film.mp4 -vn -c:a libmp3lame -b:a 128k sound.mp3
is "the sound's codec" "$(probe sound.mp3 a:0 stream=codec_name)" mp3
is_about "its length" "$(probe sound.mp3 a:0 format=duration)" 1.9 2.3
# A tone of 440 Hz crosses zero 880 times a second.
ffmpeg -v error -i sound.mp3 -ss 0.5 -t 1 -ac 1 -ar 44100 -f s16le -c:a pcm_s16le tone.raw
is_about "its tone in Hz" "$(od -An -v -t d2 -w2 tone.raw |
    awk 'NR > 1 && ($1 < 0) != (last < 0) { n++ } { last = $1 } END { print n / 2 }')" 430 450
