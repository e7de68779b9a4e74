"""Pictures for the documentation: charts of lines, points and words in SVG that suits a light and a dark page."""

import math

LEFT, RIGHT = 60, 20


def marks_around(values, apart):
    """Multiples of `apart` from below all values to above them."""
    first, last = math.floor(min(values) / apart), math.ceil(max(values) / apart)
    return [n * apart for n in range(first, max(last, first + 1) + 1)]


class Picture:
    """Width and height in pixels, y downwards."""

    def __init__(self, width, height, title):
        self.width = width
        self.lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" '
                      'font-size="12" fill="#777">' % (width, height)]
        self.words(LEFT, 20, title, 'font-size="15" font-weight="600"')

    def words(self, x, y, text, how=""):
        self.lines.append('<text x="%.1f" y="%.1f" %s>%s</text>' % (x, y, how, text))

    def line(self, points, how):
        self.lines.append('<path d="M%s" %s/>' % ("L".join("%.1f %.1f" % p for p in points), how))

    def dot(self, x, y, how):
        self.lines.append('<circle cx="%.1f" cy="%.1f" r="4" %s/>' % (x, y, how))

    def bar(self, x, y, width, height, how):
        self.lines.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s/>' % (x, y, width, height, how))

    def chart(self, title, top, height, marks, last, ticks):
        """A chart's frame, x from 0 to last. marks: values of y, from its one end to the other; ticks: {x: words}.
        Returns the function from (x, y) to a place."""
        low, high = marks[0], marks[-1]

        def at(x, y):
            return (LEFT + x / last * (self.width - LEFT - RIGHT), top + (high - y) / (high - low) * height)

        self.words(LEFT, top - 10, title, 'font-weight="600"')
        for mark in marks:
            self.line([at(0, mark), at(last, mark)], 'stroke="#8886" fill="none"')
            self.words(LEFT - 6, at(0, mark)[1] + 4, "%g" % mark, 'text-anchor="end"')
        for x, text in ticks.items():
            self.words(at(x, low)[0], top + height + 15, text, 'text-anchor="middle"')
        return at

    def write(self, path):
        with open(path, "w", encoding="ascii") as f:
            f.write("\n".join(self.lines + ["</svg>"]) + "\n")
