/* Helpers for the scripts of browser_js. */
const one = selector => document.querySelector(selector);
const text = selector => (one(selector) ? one(selector).textContent : null);
const seen = selector => Boolean(one(selector) && one(selector).checkVisibility());
/* The visible button or link of this text. */
const control = label => [...document.querySelectorAll('button, a')].find(b => b.checkVisibility() && b.textContent.trim() === label);
const press = label => control(label).click();
const pressInDialog = label => [...document.querySelectorAll('dialog button')].find(b => b.textContent === label).click();
const type = (selector, value) => {
    one(selector).value = value;
    one(selector).dispatchEvent(new Event('input', {bubbles: true}));
};
/* Looks whenever the page changes, and now and then: a size, an address or a flag is no change of the document. */
const until = condition => new Promise(resolve => {
    const holds = () => {
        try {
            return Boolean(condition());
        } catch {
            return false; /* it is not there yet */
        }
    };
    const look = isLast => {
        if (!isLast && !holds())
            return;
        observer.disconnect();
        clearInterval(often);
        clearTimeout(end);
        resolve(holds());
    };
    const observer = new MutationObserver(() => look(false));
    const often = setInterval(look, 100, false);
    const end = setTimeout(look, 20000, true);

    observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
    look(false);
});
const row = name => [...document.querySelectorAll('#boxes li')].find(li => li.querySelector('.name').textContent === name);
/* WCAG's ratio of each text that is seen to the ground behind it: the texts under 4.5, with their ratio. */
const faintTexts = () => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const rgba = color => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = element => {
        for (let e = element; e; e = e.parentElement) {
            const color = rgba(getComputedStyle(e).backgroundColor);

            if (color[3] === 255)
                return color;
        }
        return [255, 255, 255, 255];
    };
    const ratio = element => {
        const [a, b] = [light(rgba(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);

        return (a + 0.05) / (b + 0.05);
    };

    return [...document.body.querySelectorAll('*')]
        .filter(e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim()))
        .map(e => [Math.round(100 * ratio(e)) / 100, e.textContent.trim().slice(0, 40)]).filter(([r]) => r < 4.5);
};
